package gc

// What tests of the package ask beside its exported names.
var DecideImages = decideImages
