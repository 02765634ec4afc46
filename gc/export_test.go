package gc

import "time"

// What tests of the package ask beside its exported names.
var DecideImages = decideImages

// SetSettle sets how long a pass waits for the file system.
func (m *ImageCollector) SetSettle(d time.Duration) { m.settle = d }
