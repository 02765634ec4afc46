package shutdown

// What tests of the package ask beside its exported names.
const SystemCritical = systemCritical

var Split = splitPeriods
