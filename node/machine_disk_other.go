//go:build !linux

package node

import "errors"

func diskCapacity(string) (int64, error) { return 0, errors.ErrUnsupported }

// CgroupV2 reports whether cgroup v2 is used.
func CgroupV2() bool { return false }
