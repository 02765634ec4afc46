//go:build !linux

package agent

import "errors"

func diskCapacity(string) (int64, error) { return 0, errors.ErrUnsupported }

func CgroupV2() bool { return false }
