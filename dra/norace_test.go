//go:build !race

package dra_test

const raceEnabled = false
