//go:build race

package sim

// defaultSeeds is what the race detector leaves time for.
const defaultSeeds = 15

// allAsNodes has whole nodes live through every schedule of testdata.
const allAsNodes = false
