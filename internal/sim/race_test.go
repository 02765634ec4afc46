//go:build race

package sim

// defaultSeeds is what the race detector leaves time for.
const defaultSeeds = 15
