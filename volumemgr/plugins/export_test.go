package plugins

// What tests of the package ask beside its exported names.
var CheckHostPath = checkHostPath
var CheckPath = checkPath
