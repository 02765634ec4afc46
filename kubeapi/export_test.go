package kubeapi

// What tests of the package ask beside its exported names.
const AnnotationAttach = annotationAttach
const MaxRetryAfter = maxRetryAfter
const TaintUninitialized = taintUninitialized

var NodePatch = nodePatch
