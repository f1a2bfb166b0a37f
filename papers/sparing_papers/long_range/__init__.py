"""What the studies of long inputs share: variants, trainings, pretrained encoders, answers."""

DENSE, UNIFORM, NOTHING = "softmax", "uniform", "none"
KERFORMER, BY_CONTENT = "kerformer", "kerformer, by content"
