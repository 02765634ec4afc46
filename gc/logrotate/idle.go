package logrotate

// noIdle is an idle that never tells: logs are looked at instead.
type noIdle struct{}

func (noIdle) arm(string, string) bool { return false }
func (noIdle) written() <-chan string  { return nil }
func (noIdle) close()                  {}
