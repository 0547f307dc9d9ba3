"""Dead letters and retries: lists, groups, changes and exports."""
