package stream

// Addr is where a runtime's URL leads.
func Addr(raw string) (string, error) {
	_, addr, err := checkTarget(raw)
	return addr, err
}
