//go:build race

package eviction_test

// simSeeds is fewer nodes, as each takes many times as long.
const simSeeds = 200
