//go:build race

package sim

const (
	// defaultSeeds is what the race detector leaves time for.
	defaultSeeds = 15
	// garbage is GOGC: the race detector takes ten times the memory.
	garbage = 400
	// allAsNodes has whole nodes live through every schedule of testdata.
	allAsNodes = false
)
