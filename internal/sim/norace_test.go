//go:build !race

package sim

const (
	// defaultSeeds is how many schedules TestSeeds runs unless it is told.
	defaultSeeds = 100
	// garbage is GOGC: some 100 MB.
	garbage = 1600
	// allAsNodes has whole nodes live through every schedule of testdata.
	allAsNodes = true
)
