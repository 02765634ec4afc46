//go:build !race

package devicemgr_test

const raceEnabled = false
