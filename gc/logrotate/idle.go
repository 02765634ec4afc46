package logrotate

// noIdle is an idle that never reports: logs are looked at instead.
type noIdle struct{}

// poll is newIdle for who wants it so.
func poll() idle { return noIdle{} }

func (noIdle) arm(string, string) bool { return false }
func (noIdle) written() <-chan string  { return nil }
func (noIdle) close()                  {}
