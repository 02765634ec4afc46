package podlife

// Kind is the kind of a [Cause]. The zero value means that nobody gave a reason.
type Kind string

// Why a container ends although its pod goes on.
const (
	// Changed means that the spec defines another container than the one that runs.
	Changed Kind = "ContainerChanged"
	// LivenessFailed and StartupFailed mean that a probe failed. The probe may have a
	// grace period of its own (KEP-2238).
	LivenessFailed Kind = "LivenessProbe"
	StartupFailed  Kind = "StartupProbe"
	// StateUnknown means that the runtime cannot tell whether the container runs.
	StateUnknown Kind = "Unknown"
	// HookFailed means that the postStart hook failed.
	HookFailed Kind = "FailedPostStartHook"
	// Resized means that the container's resize policy wants a restart (KEP-1287).
	Resized Kind = "ResizeRequiresRestart"
	// Surplus means that the container runs beside a newer instance of itself.
	Surplus Kind = "SurplusInstance"
)

// Cause is why a pod or a container ends.
type Cause struct {
	Kind Kind
	// Grace is how many seconds there are to end, as given by whoever ends it; nil is
	// what the pod has anyway. See [Grace].
	Grace *int64
}
