// Package nodewright is the root of a library of node-agent building blocks.
// It holds no code of its own: see README.md for the packages below it.
package nodewright
