/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Power states for the CPUs that QEMU's own DSDT declares (\_SB.CPUS.C000 ..., at most 4 here).
 * P-states by SystemIO on one DMA page register per CPU, an unused byte: no cpuinfo_cur_freq.
 *
 * C-states: three entries of type C1 by FFixedHW: without MWAIT only type C1 may be halted by HLT
 * (acpi_processor_get_power_info_cst()). Latencies 1, 100 and 800 us, so that the menu governor tells them apart.
 * One domain per CPU.
 */
DefinitionBlock ("", "SSDT", 2, "LAB", "LABIO", 1)
{
    External (\_SB.CPUS.C000, ProcessorObj)
    If (CondRefOf (\_SB.CPUS.C000))
    {
    Scope (\_SB.CPUS.C000)
    {
        Name (_PSS, Package ()
        {
            Package () { 2000, 20000, 10, 10, 0, 0 },
            Package () { 1600, 15000, 10, 10, 1, 1 },
            Package () { 1200, 10000, 10, 10, 2, 2 }
        })
        Name (_PCT, Package ()
        {
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x81, 1) },
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x81, 1) }
        })
        Name (_PPC, 0)
        Name (_PSD, Package () { Package () { 5, 0, 0, 0xFC, 1 } })
        Name (_CST, Package ()
        {
            3,
            Package () { ResourceTemplate () { Register (FFixedHW, 0, 0, 0, 0) }, 1, 1, 1000 },
            Package () { ResourceTemplate () { Register (FFixedHW, 0, 0, 0, 0) }, 1, 100, 500 },
            Package () { ResourceTemplate () { Register (FFixedHW, 0, 0, 0, 0) }, 1, 800, 100 }
        })
    }
    }
    External (\_SB.CPUS.C001, ProcessorObj)
    If (CondRefOf (\_SB.CPUS.C001))
    {
    Scope (\_SB.CPUS.C001)
    {
        Name (_PSS, Package ()
        {
            Package () { 2000, 20000, 10, 10, 0, 0 },
            Package () { 1600, 15000, 10, 10, 1, 1 },
            Package () { 1200, 10000, 10, 10, 2, 2 }
        })
        Name (_PCT, Package ()
        {
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x82, 1) },
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x82, 1) }
        })
        Name (_PPC, 0)
        Name (_PSD, Package () { Package () { 5, 0, 1, 0xFC, 1 } })
        Name (_CST, Package ()
        {
            3,
            Package () { ResourceTemplate () { Register (FFixedHW, 0, 0, 0, 0) }, 1, 1, 1000 },
            Package () { ResourceTemplate () { Register (FFixedHW, 0, 0, 0, 0) }, 1, 100, 500 },
            Package () { ResourceTemplate () { Register (FFixedHW, 0, 0, 0, 0) }, 1, 800, 100 }
        })
    }
    }
    External (\_SB.CPUS.C002, ProcessorObj)
    If (CondRefOf (\_SB.CPUS.C002))
    {
    Scope (\_SB.CPUS.C002)
    {
        Name (_PSS, Package ()
        {
            Package () { 2000, 20000, 10, 10, 0, 0 },
            Package () { 1600, 15000, 10, 10, 1, 1 },
            Package () { 1200, 10000, 10, 10, 2, 2 }
        })
        Name (_PCT, Package ()
        {
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x83, 1) },
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x83, 1) }
        })
        Name (_PPC, 0)
        Name (_PSD, Package () { Package () { 5, 0, 2, 0xFC, 1 } })
        Name (_CST, Package ()
        {
            3,
            Package () { ResourceTemplate () { Register (FFixedHW, 0, 0, 0, 0) }, 1, 1, 1000 },
            Package () { ResourceTemplate () { Register (FFixedHW, 0, 0, 0, 0) }, 1, 100, 500 },
            Package () { ResourceTemplate () { Register (FFixedHW, 0, 0, 0, 0) }, 1, 800, 100 }
        })
    }
    }
    External (\_SB.CPUS.C003, ProcessorObj)
    If (CondRefOf (\_SB.CPUS.C003))
    {
    Scope (\_SB.CPUS.C003)
    {
        Name (_PSS, Package ()
        {
            Package () { 2000, 20000, 10, 10, 0, 0 },
            Package () { 1600, 15000, 10, 10, 1, 1 },
            Package () { 1200, 10000, 10, 10, 2, 2 }
        })
        Name (_PCT, Package ()
        {
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x87, 1) },
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x87, 1) }
        })
        Name (_PPC, 0)
        Name (_PSD, Package () { Package () { 5, 0, 3, 0xFC, 1 } })
        Name (_CST, Package ()
        {
            3,
            Package () { ResourceTemplate () { Register (FFixedHW, 0, 0, 0, 0) }, 1, 1, 1000 },
            Package () { ResourceTemplate () { Register (FFixedHW, 0, 0, 0, 0) }, 1, 100, 500 },
            Package () { ResourceTemplate () { Register (FFixedHW, 0, 0, 0, 0) }, 1, 800, 100 }
        })
    }
    }
}
