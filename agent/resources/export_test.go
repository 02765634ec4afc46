package resources

// What tests of the package ask beside its exported names.
const ReasonDevicesNotReady = reasonDevicesNotReady
const ReasonNotRestored = reasonNotRestored
const ReasonPrepareClaims = reasonPrepareClaims
const ReasonUnprepareClaims = reasonUnprepareClaims
