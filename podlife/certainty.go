package podlife

// Certainty says how well something is known. A higher value is more certain.
type Certainty uint8

const (
	// Unheard means that the source of the fact has not answered since the process started.
	Unheard Certainty = iota
	// Remembered means that the fact was stored before a restart of the process. It may be out of
	// date.
	Remembered
	// Confirmed means that the source has reported the fact to this process.
	Confirmed
)

// String returns unheard, remembered or confirmed.
func (c Certainty) String() string {
	switch c {
	case Remembered:
		return "remembered"
	case Confirmed:
		return "confirmed"
	default:
		return "unheard"
	}
}
