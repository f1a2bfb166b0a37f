"""What the studies of long inputs share: arms, trainings, pretrained encoders, answers."""
