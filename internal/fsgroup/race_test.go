//go:build race

package fsgroup

const race = true // all is slower then
