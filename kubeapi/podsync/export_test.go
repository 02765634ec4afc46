package podsync

// What tests of the package ask beside its exported names.
var IsMirrorOf = isMirrorOf
