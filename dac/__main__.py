import sys

from dac.cli import main

sys.exit(main())
