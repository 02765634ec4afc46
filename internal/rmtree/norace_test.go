//go:build !race

package rmtree_test

const race = false
