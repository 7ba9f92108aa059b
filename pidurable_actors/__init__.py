"""pidurable_actors"""
