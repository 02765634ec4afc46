//go:build !linux

package main

func calmMonitor() {}
