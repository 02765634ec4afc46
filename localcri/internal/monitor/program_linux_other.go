//go:build linux && !amd64 && !arm64

package monitor

const program = ""
