package stats

// What tests of the package ask beside its exported names.
var CgroupFS = cgroupFS
