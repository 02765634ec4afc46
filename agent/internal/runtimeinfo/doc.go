// Package runtimeinfo caches the name and the handlers of a CRI runtime. It calls the runtime only
// when a pod needs the answer.
package runtimeinfo
