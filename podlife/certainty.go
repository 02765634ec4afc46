package podlife

// Certainty is whose word something is. A later one is more certain. The zero value is
// the careful one: nobody has said anything.
type Certainty uint8

const (
	// Unheard means that whoever knows has not been heard yet.
	Unheard Certainty = iota
	// Remembered means that it is what was known before a restart. It may be out of date.
	Remembered
	// Confirmed means that whoever knows has said so to this process.
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
