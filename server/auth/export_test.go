package auth

// What tests of the package ask beside its exported names.
var Below = below
