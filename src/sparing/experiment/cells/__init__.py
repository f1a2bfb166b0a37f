"""What cells are made of: calls to time, trainings, devices, and how long they may take."""
