//go:build !linux

package agent

import "errors"

type kernelMounts struct{}

func (kernelMounts) under(string) ([]string, error) { return nil, nil }

func (kernelMounts) tmpfs(string, string) error {
	return errors.New("memory-backed volumes need Linux")
}

func (kernelMounts) unmount(string) error { return nil }
