"""Runs transforms: functions that a user writes for orders."""
