"""The table at the end of `make faults`, and what was not tried on this machine."""
import load


def pytest_terminal_summary(terminalreporter):
    if not load.ROWS + load.NOTES:
        return
    write = terminalreporter.write_line
    write('')
    write('%-28s %6s %8s %6s   %-46s %s' % ('case', 'sent', 'answered', 'failed', 'how and where', 'the gateway'))
    for name, sent, answered, failed, where, counters in load.ROWS:
        write('%-28s %6d %8d %6d   %-46s %s' % (name, sent, answered, failed, where, counters))
    for note in load.NOTES:
        write(note)
    skipped = terminalreporter.stats.get('skipped', [])
    write('%d cases, %d not tried here' % (len(load.ROWS), len(skipped)))
    for report in skipped:
        write('NOT TRIED  %s: %s' % (report.nodeid.rpartition('::')[2], report.longrepr[2]))
