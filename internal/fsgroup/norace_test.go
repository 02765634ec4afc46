//go:build !race

package fsgroup

const race = false
