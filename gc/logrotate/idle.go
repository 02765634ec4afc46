package logrotate

// noIdle is an idle that never reports: logs are looked at instead, every Config.Longest.
type noIdle struct{}

// poll is newIdle for who wants it so.
func poll() idle { return noIdle{} }

// arm arms nothing, and the nil channel of written never delivers.
func (noIdle) arm(string, string) bool { return false }
func (noIdle) written() <-chan string  { return nil }
func (noIdle) close()                  {}
