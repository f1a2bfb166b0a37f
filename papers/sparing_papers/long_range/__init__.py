"""What the studies of long inputs share: arms, trainings, pretrained encoders, answers."""

DENSE, UNIFORM, NOTHING = "softmax", "uniform", "none"
KERFORMER, BY_CONTENT = "kerformer", "kerformer, by content"
