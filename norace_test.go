//go:build !race

package nodewright_test

const raceEnabled = false
