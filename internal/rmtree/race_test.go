//go:build race

package rmtree_test

const race = true // all is slower then
