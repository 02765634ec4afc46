// Package runtimeinfo keeps what a CRI runtime says of itself: its name and its
// handlers. It asks only when a pod needs to know.
package runtimeinfo
