//go:build !race

package eviction_test

const simSeeds = 1000
