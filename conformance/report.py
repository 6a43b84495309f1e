def add_arguments(commands): pass
