//go:build !linux

package main

import "context"

func trimMemory(context.Context) {}
