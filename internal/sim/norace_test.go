//go:build !race

package sim

// defaultSeeds is how many schedules TestSeeds runs unless it is told.
const defaultSeeds = 100

// allAsNodes has whole nodes live through every schedule of testdata.
const allAsNodes = true
