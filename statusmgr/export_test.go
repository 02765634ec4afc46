package statusmgr

// What tests of the package ask beside its exported names.
var Merge = merge
