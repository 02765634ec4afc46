package logrotate

// noIdle is an idle that reports no writes: sizes are read every Config.Longest.
type noIdle struct{}

// poll is used in place of newIdle if Config.Poll is set.
func poll() idle { return noIdle{} }

// arm returns false, since writes are not reported.
func (noIdle) arm(string, string) bool { return false }
func (noIdle) written() <-chan string  { return nil }
func (noIdle) close()                  {}
